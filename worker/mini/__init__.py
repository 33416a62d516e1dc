"""The tiny Polish models that ship with the package; README.md beside this file is their model card."""
