"""The paper's data: official files are found, fetched, checked and read."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import struct
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

import tnshare as tn
from benchmarks.paper.data import fetching, folder, mnist, omniglot
from benchmarks.paper.data.adience_files import UNKNOWN, adience, age_group, pixels
from benchmarks.paper.data.fetching import Official, official
from benchmarks.paper.data.mnist_files import read_idx
from benchmarks.paper.data.omniglot_files import pack


def idx(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def digits_in(home, packed=True, count=12, seed=0):
    """Made digits in the official layout."""
    rng = np.random.default_rng(seed)
    home.mkdir(parents=True)
    arrays = {}
    for part, n in (("train", count), ("t10k", count // 2)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, n, dtype=np.uint8)
    for name, array in arrays.items():
        if packed:
            (home / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (home / name).write_bytes(idx(array))
    return list(arrays.values())


@pytest.mark.parametrize("packed", [True, False])
def test_digits_are_read_packed_or_not(tmp_path, packed):
    made = digits_in(tmp_path / "mnist", packed)
    read = mnist(tmp_path)
    for found, expected in zip(
        (read.images, read.labels, read.test_images, read.test_labels), made, strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_damaged_idx_files_are_refused():
    good = idx(np.arange(6, dtype=np.uint8).reshape(2, 3))
    np.testing.assert_array_equal(read_idx(good), [[0, 1, 2], [3, 4, 5]])
    for bad, text in ((good[:-1], "cut short"), (good[:9], "cut short"), (b"\0\0\x0d\x01", "no idx file")):
        with pytest.raises(tn.TnshareError, match=text):
            read_idx(bad)


def test_images_and_labels_that_do_not_belong_together_are_refused(tmp_path):
    digits_in(tmp_path / "mnist", packed=False)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(tn.TnshareError, match=r"images \(6, 28, 28\) and labels \(5,\)"):
        mnist(tmp_path)


@pytest.fixture
def server(tmp_path):
    """A folder that is served on this machine."""
    home = tmp_path / "served"
    home.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    here = socket.inet_ntoa(struct.pack("!I", socket.INADDR_LOOPBACK))
    serving = ThreadingHTTPServer((here, 0), partial(Quiet, directory=str(home)))
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield home, f"http://{here}:{serving.server_port}/"
    serving.shutdown()
    thread.join()
    serving.server_close()


def test_a_file_is_fetched_from_the_first_address_that_has_it_and_once_only(server, tmp_path):
    served, url = server
    (served / "good.bin").write_bytes(b"digits")
    (served / "damaged.bin").write_bytes(b"dig")
    md5 = hashlib.md5(b"digits").hexdigest()
    addresses = [url + "missing.bin", url + "damaged.bin", url + "good.bin"]
    path = official(tmp_path / "data", Official("good.bin", md5, addresses))
    assert path.read_bytes() == b"digits"
    (served / "good.bin").unlink()
    assert official(tmp_path / "data", Official("good.bin", md5, addresses)) == path
    assert [p.name for p in path.parent.iterdir()] == ["good.bin"]  # no parts are left behind


def test_what_could_not_be_fetched_says_why_and_what_to_do(server, tmp_path):
    served, url = server
    (served / "damaged.bin").write_bytes(b"dig")
    with pytest.raises(tn.TnshareError, match=r"(?s)the md5 .* expected 0000.*404.*--data or TNSHARE_DATA"):
        official(tmp_path, Official("x.bin", "0000", [url + "damaged.bin", url + "missing.bin"]))
    assert not (tmp_path / "x.bin").exists()


def test_the_folder_is_that_of_the_command_line_then_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TNSHARE_DATA", str(tmp_path / "environment"))
    assert folder(str(tmp_path / "given")) == tmp_path / "given"
    assert folder() == tmp_path / "environment"
    monkeypatch.delenv("TNSHARE_DATA")
    assert folder().parts[-2:] == ("tnshare", "data")


def drawing(pixels):
    stream = io.BytesIO()
    Image.fromarray(np.where(pixels, 0, 255).astype(np.uint8)).convert("1").save(stream, "PNG")
    return stream.getvalue()


def archives_in(home, characters):
    """Two archives of made drawings in the official layout; pixels by (alphabet, character, drawer)."""
    rng, made, number = np.random.default_rng(0), {}, 1
    home.mkdir(parents=True, exist_ok=True)
    for archive, alphabets in characters.items():
        with zipfile.ZipFile(home / f"{archive}.zip", "w") as stored:
            stored.writestr(f"{archive}/", "")
            for alphabet, count in alphabets.items():
                for character in range(count):
                    for drawer in range(20):
                        made[alphabet, character, drawer] = rng.random((105, 105)) < 0.1
                        name = f"{alphabet}/character{character + 1:02}/{number:04}_{drawer + 1:02}.png"
                        stored.writestr(f"{archive}/{name}", drawing(made[alphabet, character, drawer]))
                    number += 1
    return made


def test_omniglot_is_read_from_the_archives_and_then_from_one_packed_file(tmp_path):
    home = tmp_path / "omniglot"
    made = archives_in(
        home, {"images_background": {"Greek": 2, "Arcadian": 3}, "images_evaluation": {"Angelic": 1}}
    )
    first = omniglot(tmp_path)
    assert first.names == ("Arcadian", "Greek", "Angelic")
    assert [first.characters(a) for a in range(3)] == [3, 2, 1]
    for archive in home.glob("*.zip"):
        archive.unlink()
    again = omniglot(tmp_path)
    for row in range(0, len(again.packed), 7):
        key = again.names[again.alphabet[row]], int(again.character[row]), int(again.drawer[row])
        np.testing.assert_array_equal(again.images(np.array([row]))[0], made.pop(key))
    np.testing.assert_array_equal(first.packed, again.packed)


def test_drawings_of_another_size_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as stored:
        stored.writestr("a/Greek/character01/0001_01.png", drawing(np.zeros((28, 28))))
    with pytest.raises(tn.TnshareError, match=r"image of \(28, 28\): expected 105 x 105"):
        pack([tmp_path / "a.zip"])


def faces_in(home, folds=5, each=6, size=60):
    """Made faces in the official layout: red faces are women, bright ones old."""
    ages = ["(0, 2)", "(25, 32)", "(60, 100)"]
    for fold in range(folds):
        lines = ["user_id\toriginal_image\tface_id\tage\tgender\tx\ty\tdx\tdy\ttilt_ang\tfiducial_yaw\tscore"]
        for n in range(each):
            user = f"{fold}@N0{n % 2}"
            lines.append(f"{user}\t{n}.jpg\t{n + 9}\t{ages[n % 3]}\t{'fm'[n % 2]}\t0\t0\t1\t1\t0\t0\t0")
            path = home / "aligned" / user / f"landmark_aligned_face.{n + 9}.{n}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            colour = np.full((size, size, 3), 80 * (n % 3), np.uint8)
            colour[..., 0] = 255 * (n % 2 == 0)
            Image.fromarray(colour).save(path)
        (home / f"fold_{fold}_data.txt").write_text("\n".join(lines) + "\n")


def test_faces_are_read_from_the_fold_files(tmp_path):
    faces_in(tmp_path / "adience")
    faces = adience(tmp_path, [1, 3])
    assert [(f.age, f.gender) for f in faces[:6]] == [(0, 0), (4, 1), (7, 0), (0, 1), (4, 0), (7, 1)]
    assert len(faces) == 12
    image = pixels(faces[0], 40)
    assert image.shape == (40, 40, 3)
    assert image[20, 20, 0] > 200
    assert image[20, 20, 1] < 40
    with pytest.raises(tn.TnshareError, match=r"fold_7_data.txt is not .* on request"):
        adience(tmp_path, [7])


@pytest.mark.parametrize(
    ("label", "group"),
    [
        ("(0, 2)", 0),
        ("(8, 12)", 2),
        ("(8, 23)", 2),
        ("(27, 32)", 4),
        ("(38, 48)", 5),
        ("35", UNKNOWN),
        ("13", 2),
        ("3", UNKNOWN),
        ("None", UNKNOWN),
        ("(60, 100)", 7),
    ],
)
def test_age_labels_with_misprints(label, group):
    assert age_group(label) == group


def test_md5_of_a_file(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert fetching.md5_of(tmp_path / "x") == hashlib.md5(b"abc").hexdigest()
