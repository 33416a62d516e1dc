"""Text in, score out. One scorer a file; none of them knows a job, a store or a model."""
