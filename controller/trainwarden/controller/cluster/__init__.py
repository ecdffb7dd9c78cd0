"""The operator's side: what stands in the Kubernetes API, and what is done there."""
