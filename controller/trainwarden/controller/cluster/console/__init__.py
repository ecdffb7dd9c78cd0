"""What the commands for a cluster print, and how they reach it: with the caller's kubeconfig and nothing else."""
