"""What was found, judged and shown beside what the paper printed."""
