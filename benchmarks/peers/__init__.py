"""What tnshare is compared with, on the same numbers in the same rounds."""
