"""The load client: prompts → requests → a closed loop over plain sockets → decoded answers."""
