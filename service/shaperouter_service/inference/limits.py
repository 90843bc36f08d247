"""Limits of calls."""

# Maximum bytes of a call's tensors: 50 images of 224x224 pixels in single precision. A service
# without functions does not even read what is above the limit of texts.
MAX_TENSOR_REQUEST_BYTES = 32 * 2**20

# Maximum texts of a call. The router's event loop takes a few microseconds for each.
MAX_TEXTS = 2**13

# Maximum tokens of a call's texts with padding to the longest. A message of texts is small, but one
# long text would pad thousands of short ones.
MAX_PADDED_TOKENS = 2**20
