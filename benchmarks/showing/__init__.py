"""What was measured, as text, pages and figures, and as numbers that documents cite."""
