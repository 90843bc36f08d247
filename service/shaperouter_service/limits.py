"""Limits that the edge checks and the device is built for: one number each, for both."""

# Room for end tokens in a slot's record on the device. Checkpoints name up to four.
MAX_EOS_TOKENS = 8
