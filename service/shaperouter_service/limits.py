"""Limits that the edge checks and the device is built for: one number each, for both."""

# Room for end tokens in a slot's record on the device. Checkpoints name up to four.
MAX_EOS_TOKENS = 8

# Room for biases in a slot's record: of single tokens (logit_bias) and of banned words, in all.
MAX_BIASES = 256
# Tokens of one bias' run; a banned word is seldom more than four.
MAX_BIAS_TOKENS = 8
# Least and largest finite bias: far beyond any logit, and well inside of single precision.
MIN_BIAS, MAX_BIAS = -1e4, 1e4

# Likeliest tokens that are told besides the chosen one.
MAX_TOP_LOGPROBS = 20

# Sequences of one request that are sampled side by side, each in a slot of its own.
MAX_RETURN_SEQUENCES = 16

# Strings that end a sequence, and characters in each.
MAX_STOP = 16
MAX_STOP_CHARACTERS = 256

# Far beyond what changes an answer, and well inside of what single precision divides by.
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-6, 1e6
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 1e-3, 1e3
# A length of thousands of tokens to such a power still fits single precision.
MIN_LENGTH_PENALTY, MAX_LENGTH_PENALTY = -10.0, 10.0

# Room for tokens that a transcript may not begin with in a slot's record. Checkpoints name two.
MAX_BEGIN_SUPPRESSED = 8

# Graphs that one request may have made ready: more than the ladders of several models have.
MAX_WARM_SIGNATURES = 1000

# A recording: its file, in bytes; how long it is, which is what memory depends on (64 kB a second);
# and what it may be made of. 8 channels are those of a cinema, 192 kHz those of a studio.
MAX_AUDIO_BYTES = 512 * 2**20
MAX_AUDIO_SECONDS = 2 * 3600
MAX_AUDIO_CHANNELS = 8
MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 4_000, 192_000
# Samples are from -1 to 1; some programs write floating ones in steps of 16 bits.
MAX_SAMPLE = 2.0**15

# Temperatures that a window is decoded at, one after the other, and the largest of them.
MAX_TEMPERATURES = 8
MAX_TRANSCRIPTION_TEMPERATURE = 1.0
# Seconds of a stream after which what there is of a window is decoded again: less would hardly hold
# a word, and more is never waited for.
MIN_STEP_SECONDS, MAX_STEP_SECONDS = 0.5, 30.0
