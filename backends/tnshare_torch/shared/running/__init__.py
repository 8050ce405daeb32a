"""A call of the user's forward with tensors in the place of placeholders."""
