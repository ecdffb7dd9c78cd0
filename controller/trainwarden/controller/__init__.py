"""The only part that consumes NATS and acts: engine, executor of actions, local mode, command line."""
