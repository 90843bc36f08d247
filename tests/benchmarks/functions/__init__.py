"""Text embeddings by the service and by others, on one real model."""
