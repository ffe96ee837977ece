"""The one seam to the operating system."""
