"""What is trained: networks, tasks, methods, and how."""
