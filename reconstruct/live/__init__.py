"""Messages to traces while the capture goes on: what is over leaves the memory."""
