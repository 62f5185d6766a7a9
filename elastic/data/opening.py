"""Opening a file of any place, as its format reads it."""

from elastic.data.codecs import codec_of
from elastic.data.decompressed import as_content
from elastic.data.files import LocalFile, OpenFiles, SourceFile, Version, look_local
from elastic.data.formats import FORMATS, format_of
from elastic.data.options import ReaderOptions
from elastic.data.remote import RemoteFile, RemoteVersions
from elastic.errors import DataError
from elastic.spec.origins import file_name, is_address


class Opener:
    """Opens files here or far away, and their content where they are compressed."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._versions = RemoteVersions()

    def open(self, name: str) -> SourceFile:
        """Open a file.

        Raises:
            DataError: It cannot be opened, or its format cannot be read from there.
        """
        file = RemoteFile(name, self.look(name)) if is_address(name) else LocalFile(name)
        format_name = self._options.format or format_of(name)
        if FORMATS[format_name].is_stream:
            return as_content(file, self._options.compression)
        if codec_of(file_name(name)):
            raise DataError(
                f"{name} is compressed as a whole, but {format_name} files are read by position: "
                "decompress it"
            )
        return file

    def look(self, name: str) -> Version:
        """Tell how a file is now.

        Raises:
            DataError: It is not there.
        """
        return self._versions.look(name) if is_address(name) else look_local(name)


def open_files(options: ReaderOptions) -> OpenFiles:
    """The files of a reader with these options."""
    opener = Opener(options)
    return OpenFiles(opener.open, opener.look)
