"""The client side: reads and checks what a user hands in, queues it, shows what came out. Needs no MLX."""
