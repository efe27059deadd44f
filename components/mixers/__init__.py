"""How the two memories' answers become one."""
