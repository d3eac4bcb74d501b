"""Sealed credentials open only with their key, under their name, unchanged."""

import base64
import os

import pytest

from noetl_common.errors import ConfigError, SealBroken
from noetl_common.secrets import Sealed, Vault, generate_key, key_id_of, load_key

DATA = {"user": "demo", "password": "päss", "port": 5432, "nested": {"a": [1, None]}}


@pytest.fixture
def vault() -> Vault:
    return Vault(os.urandom(32))


def test_what_is_sealed_opens_under_its_name(vault: Vault) -> None:
    assert vault.open("pg", vault.seal("pg", DATA)) == DATA


def test_nothing_readable_stands_in_a_sealed_record(vault: Vault) -> None:
    sealed = vault.seal("pg", {"password": "open-sesame"})
    assert b"open-sesame" not in sealed.data_encrypted + sealed.key_wrapped


def test_sealing_the_same_twice_gives_different_records(vault: Vault) -> None:
    one, two = vault.seal("pg", DATA), vault.seal("pg", DATA)
    assert one.data_encrypted != two.data_encrypted and one.key_wrapped != two.key_wrapped


def test_a_record_under_another_name_does_not_open(vault: Vault) -> None:
    with pytest.raises(SealBroken, match="'other'"):
        vault.open("other", vault.seal("pg", DATA))


def test_data_and_key_of_two_records_do_not_open_together(vault: Vault) -> None:
    one, two = vault.seal("pg", DATA), vault.seal("pg", DATA)
    with pytest.raises(SealBroken):
        vault.open("pg", Sealed(one.data_encrypted, two.key_wrapped, one.key_id))


@pytest.mark.parametrize("part", ["data_encrypted", "key_wrapped"])
@pytest.mark.parametrize("place", [0, 13, -1])
def test_a_flipped_bit_anywhere_is_noticed(vault: Vault, part: str, place: int) -> None:
    sealed = vault.seal("pg", DATA)
    parts = {"data_encrypted": bytearray(sealed.data_encrypted), "key_wrapped": bytearray(sealed.key_wrapped)}
    parts[part][place] ^= 1
    with pytest.raises(SealBroken):
        vault.open("pg", Sealed(bytes(parts["data_encrypted"]), bytes(parts["key_wrapped"]), sealed.key_id))


def test_a_cut_record_is_noticed(vault: Vault) -> None:
    sealed = vault.seal("pg", DATA)
    with pytest.raises(SealBroken):
        vault.open("pg", Sealed(b"", b"", sealed.key_id))


def test_another_key_says_which_one_is_missing(vault: Vault) -> None:
    with pytest.raises(SealBroken, match=vault.key_id):
        Vault(os.urandom(32)).open("pg", vault.seal("pg", DATA))


def test_another_key_under_the_same_id_does_not_open() -> None:
    sealed = Vault(os.urandom(32), "k1").seal("pg", DATA)
    with pytest.raises(SealBroken):
        Vault(os.urandom(32), "k1").open("pg", sealed)


def test_after_a_rotation_old_records_open_and_are_sealed_anew() -> None:
    old_key, new_key = os.urandom(32), os.urandom(32)
    sealed = Vault(old_key).seal("pg", DATA)
    vault = Vault(new_key, older={key_id_of(old_key): old_key})
    assert vault.open("pg", sealed) == DATA
    fresh = vault.rewrap("pg", sealed)
    assert fresh.key_id == key_id_of(new_key)
    assert Vault(new_key).open("pg", fresh) == DATA


def test_a_generated_key_is_accepted_and_no_two_are_alike() -> None:
    one, two = generate_key(), generate_key()
    assert one != two
    assert len(load_key(one)) == 32


def test_the_url_safe_spelling_of_a_key_is_accepted() -> None:
    key = os.urandom(32)
    assert load_key(base64.urlsafe_b64encode(key).decode()) == key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found nothing"),
        ("not base64!", "found other text"),
        (base64.b64encode(b"short").decode(), "expected 32 bytes, found 5"),
        (base64.b64encode(bytes(32)).decode(), "found a default or typed one"),
        (base64.b64encode(b"changeme" * 4).decode(), "found a default or typed one"),
    ],
)
def test_a_missing_short_or_default_key_is_refused_without_showing_it(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_key(text)
    assert not text or text not in str(caught.value)


def test_a_key_of_the_wrong_length_makes_no_vault() -> None:
    with pytest.raises(ConfigError, match="found 16"):
        Vault(os.urandom(16))
