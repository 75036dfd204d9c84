"""The Agent Host Protocol: reading its sessions, and ending its calls as the contract says."""
