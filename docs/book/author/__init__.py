"""What only authors run: the two languages in step, audits, screenshots."""
