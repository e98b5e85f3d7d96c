"""Other people's training loops, held to a charge; each file needs the library that it is named for."""
