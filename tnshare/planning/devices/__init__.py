"""What a device takes for an operation: profiles, measured here or published."""
