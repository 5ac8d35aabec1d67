/* Models of the Hugging Face hub: their names are ORG/NAME, of no folder here, and few without ORG;
 * a clone has pointers in place of their large files. */
#include <lockstep/base/hub.h>
#include <lockstep/base/key.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PART_BYTES = 96 }; /* as long as a name there may be */

static bool is_part(const char *text, size_t length)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return length > 0 && length <= PART_BYTES && text[0] != '.' && strspn(text, letters) >= length;
}

void ls_hub_hint(const char *path, char text[LS_HUB_HINT_BYTES])
{
    char folder[PART_BYTES + 1];
    size_t first = strcspn(path, "/");
    const char *name = path + first + (path[first] == '/');
    bool old =
        ls_word_among("gpt2|gpt2-medium|gpt2-large|gpt2-xl|distilgpt2", path); /* of no ORG */
    text[0] = '\0';
    if (!old && (!is_part(path, first) || !is_part(name, strlen(name))))
        return;
    snprintf(folder, sizeof folder, "%.*s", (int)first, path);
    if (access(folder, F_OK))
        snprintf(text, LS_HUB_HINT_BYTES,
                 "; a model of the Hugging Face hub must be downloaded first: hf download %s "
                 "--local-dir %s",
                 path, old ? path : name);
}

const char *ls_lfs_pointer(const char *text, size_t bytes)
{
    static const char begin[] = "version https://git-lfs";
    bool is = bytes >= sizeof begin - 1 && memcmp(text, begin, sizeof begin - 1) == 0;
    return is ? "a pointer of Git LFS, in place of the file: fetch it with git lfs pull, or with "
                "hf "
                "download"
              : NULL;
}
