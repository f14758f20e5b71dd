/* The build id that the linker put into this program or library, found in memory among the notes
 * of the loaded object: it names the exact binary in manifests, so that a resume can tell whether
 * the same code goes on. */
#include "base/build.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ELF notes are padded to words of 4 bytes. */
static size_t padded(size_t bytes) { return (bytes + 3) & ~(size_t)3; }

/* Finds the build id among ELF notes, which lie one after the other: a header, a name and a
 * content, each padded to 4 bytes. */
static void find_id(const uint8_t *notes, size_t bytes, char text_out[SH_BUILD_TEXT]) {
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, content = name + padded(note.n_namesz);
        at = content + padded(note.n_descsz);
        if (at > bytes) return;
        if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof ELF_NOTE_GNU ||
            memcmp(notes + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) != 0)
            continue;
        for (size_t i = 0; i < note.n_descsz && 2 * i + 3 <= SH_BUILD_TEXT; i++)
            snprintf(text_out + 2 * i, 3, "%02x", notes[content + i]);
        return;
    }
}

/* Tells whether a loaded object is the one that this code was loaded from: program or shared
 * library. */
static bool holds(const struct dl_phdr_info *object, uintptr_t address) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD &&
            address - (object->dlpi_addr + part->p_vaddr) < part->p_memsz)
            return true;
    }
    return false;
}

/* Callback of dl_iterate_phdr; 1 ends the walk. */
static int look_at(struct dl_phdr_info *object, size_t size, void *text_out) {
    (void)size;
    if (!holds(object, (uintptr_t)&sh_build_text)) return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_NOTE)
            find_id((const uint8_t *)(object->dlpi_addr + part->p_vaddr), part->p_memsz, text_out);
    }
    return 1;
}

/* Build id of the loaded object, read from memory: its file may have been replaced meanwhile. */
const char *sh_build_text(char text_out[SH_BUILD_TEXT]) {
    text_out[0] = '\0';
    dl_iterate_phdr(look_at, text_out);
    return text_out;
}
