"""Limits that validation enforces and device memory is sized for: one constant for both."""

# Reason of a prompt, or a number of new tokens, that the length of a model has no room for.
CONTEXT_LENGTH_EXCEEDED = "CONTEXT_LENGTH_EXCEEDED"

# Maximum end tokens of a slot. Checkpoints name up to four.
MAX_EOS_TOKENS = 8

# Maximum biases of a slot: for single tokens (logit_bias) and for banned words together.
MAX_BIASES = 256
# Maximum tokens of a bias; a banned word seldom has more than four.
MAX_BIAS_TOKENS = 8
# Smallest and largest finite bias: far beyond any logit, and well within single precision.
MIN_BIAS, MAX_BIAS = -1e4, 1e4

# Maximum number of likeliest tokens returned besides the chosen one, or the prompt's own.
MAX_TOP_LOGPROBS = 20

# Maximum sampled sequences of one request, each in a slot of its own.
MAX_RETURN_SEQUENCES = 16

# Maximum stop strings, and characters in each.
MAX_STOP = 16
MAX_STOP_CHARACTERS = 256

# Maximum characters of a schema, regular expression or grammar, and maximum number of choices.
MAX_CONSTRAINT_CHARACTERS = 65_536
MAX_CHOICES = 256

# Maximum characters of a text per token that it may have; more if the vocabulary has a longer
# token. A longer text is refused without tokenizing it. Because a tokenizer that drops repeated
# spaces or accents could make some of them fit, the limit is generous: English has 4 characters per
# token.
MIN_CHARACTERS_PER_TOKEN = 128
# Maximum characters of texts that wait to be tokenized, for ordinary and for long texts each. A
# single client may use half of it, which is as much as a message can contain.
MAX_QUEUED_CHARACTERS = 8 * 2**20

# Maximum bytes of a request that has no recording: about 250,000 tokens of English. A service
# without a model that transcribes does not even read what is above.
MAX_TEXT_REQUEST_BYTES = 2**20

# Maximum messages of a conversation: far more than fit a model's context.
MAX_MESSAGES = 4096
# Maximum tools of a request: far more than a model can choose from.
MAX_TOOLS = 1024

# Far beyond what changes a result, and well within what single precision can divide by.
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-6, 1e6
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 1e-3, 1e3
# A length of thousands of tokens to this power still fits single precision.
MIN_LENGTH_PENALTY, MAX_LENGTH_PENALTY = -10.0, 10.0

# Maximum tokens that a slot's transcript may not begin with. Checkpoints name two.
MAX_BEGIN_SUPPRESSED = 8

# Maximum graphs that one request may warm: more than the ladders of several models have.
MAX_WARM_SIGNATURES = 1000

# Maximum number of temperatures to decode a window at, and the largest of them.
MAX_TEMPERATURES = 8
MAX_TRANSCRIPTION_TEMPERATURE = 1.0
# Range of the seconds after which an incomplete window of a stream is decoded again: less would
# hardly contain a word, and more is never waited for.
MIN_STEP_SECONDS, MAX_STEP_SECONDS = 0.5, 30.0
