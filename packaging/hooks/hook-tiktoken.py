"""tiktoken's named encodings (tiktoken_ext) fetch vocabularies from the network; ours come out of the model file.

PyInstaller prefers this hook to the one of pyinstaller-hooks-contrib, which would bring them in.
"""

hiddenimports: list[str] = []
