r"""The privacy curve of a release, and the choice of the method for a total of several releases."""
