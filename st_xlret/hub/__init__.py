"""Export to built-in modules, the host's model card, and models from and to the Hub."""
