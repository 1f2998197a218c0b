"""What a run of bytes is, told from its first few: enough to describe a file instead of dumping it."""

from __future__ import annotations

import struct

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF87a", "GIF image"),
    (b"GIF89a", "GIF image"),
    (b"BM", "BMP image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "zip archive (or an office document)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip archive"),
    (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"),
    (b"\xcf\xfa\xed\xfe", "macOS program"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"\x1a\x45\xdf\xa3", "Matroska or WebM video"),
)


def kind(data: bytes) -> str:
    """`PNG image, 640 × 480`, `gzip data` …; empty when the bytes say nothing."""
    if data[:4] == b"RIFF" and data[8:12] in (b"WEBP", b"WAVE", b"AVI "):
        return {b"WEBP": "WebP image", b"WAVE": "WAV audio", b"AVI ": "AVI video"}[data[8:12]]
    if data[4:8] == b"ftyp":
        return "MP4 media"
    name = next((name for start, name in _SIGNATURES if data.startswith(start)), "")
    size = _size(name, data) if name.endswith("image") else None
    return f"{name}, {size[0]} × {size[1]}" if size else name


def _size(name: str, data: bytes) -> tuple[int, int] | None:
    try:
        if name.startswith("PNG"):
            width, height = struct.unpack_from(">II", data, 16)
        elif name.startswith("GIF"):
            width, height = struct.unpack_from("<HH", data, 6)
        elif name.startswith("JPEG"):
            return _jpeg_size(data)
        else:
            return None
    except struct.error:
        return None
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None
