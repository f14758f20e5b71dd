#include "base/hash.h"

#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "harness.h"

/* FIPS 180-4 examples. */
TEST(hash, sha256_gives_the_published_digests) {
    static const struct {
        const char *text, *hex;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < SH_COUNT(vectors); i++) {
        char hex[SH_SHA256_HEX];
        sh_sha256_hex(vectors[i].text, strlen(vectors[i].text), hex);
        assert_string_equal(hex, vectors[i].hex);
    }
}

/* RFC 7693, appendix A; the empty text as b2sum prints it. */
TEST(hash, blake2_gives_the_published_digests) {
    char hex[SH_BLAKE2_HEX];
    sh_blake2_hex("abc", 3, hex);
    assert_string_equal(hex,
                        "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
                        "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
    sh_blake2_hex("", 0, hex);
    assert_string_equal(hex,
                        "786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419"
                        "d25e1031afee585313896444934eb04b903a685b1448b755d56f701afe9be2ce");
}

TEST(hash, a_file_has_the_digest_of_its_bytes) {
    char *path = sh_path_join(sh_test_folder("hash"), "file");
    char from_file[SH_BLAKE2_HEX], from_bytes[SH_BLAKE2_HEX];
    CHECK_OK(sh_file_write(path, "some bytes", 10));
    CHECK_OK(sh_file_blake2(path, from_file));
    sh_blake2_hex("some bytes", 10, from_bytes);
    assert_string_equal(from_file, from_bytes);
    CHECK_OK(sh_file_write(path, NULL, 0));
    CHECK_OK(sh_file_blake2(path, from_file));
    sh_blake2_hex("", 0, from_bytes);
    assert_string_equal(from_file, from_bytes);
    CHECK_FAILS(SH_E_IO, "no-such-file", sh_file_blake2("no-such-file", from_file));
    sh_free(path);
}
