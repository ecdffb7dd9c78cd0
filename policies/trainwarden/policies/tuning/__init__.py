"""Choose the parameters of a policy by what they would have done to recorded runs."""
