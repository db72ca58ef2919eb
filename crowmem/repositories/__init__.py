"""What crowmem does: one class a subject, no driver, no SQL text."""
