/* What `make install` leaves is enough: programs compile with what pkg-config says and start, from
 * any folder, with no library path set. */
#include "../support/scratch.h"
#include "../support/suite.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Runs the lines in a shell at the repository's root, with $build and $scratch set; they may call
 * `build_with FOLDER [--static]`, which compiles an example with the pkg-config files of a folder
 * and runs it from another, and `without WORD FILE`. */
static void shell(const char *scratch, const char *lines)
{
    char build[PATH_MAX / 2] = "", *command;
    assert_true(readlink("/proc/self/exe", build, sizeof build - 1) > 0);
    for (int up = 0; up < 3; up++)
        *strrchr(build, '/') = '\0';
    int length = asprintf(
        &command,
        "set -eu; exec 2>&1; build='%s'; scratch='%s'; cd \"$build/..\"\n"
        "unset MAKEFLAGS MAKELEVEL TESTED LD_LIBRARY_PATH PKG_CONFIG_PATH || true\n"
        "make() { command make --no-print-directory BUILD=\"$(basename \"$build\")\" \"$@\"; }\n"
        "without() { ! grep \"$@\"; }\n"
        "build_with() {\n"
        "    flags=$(PKG_CONFIG_PATH=$1 pkg-config ${2:-} --cflags --libs lockstep)\n"
        "    if [ -n \"${2:-}\" ]; then\n"
        "        flags=$(echo \"$flags\" | sed 's/-llockstep/-l:liblockstep.a/'); fi\n"
        "    ${CC:-cc} examples/collective.c $flags -o \"$scratch/program\"\n"
        "    (cd / && \"$scratch/program\")\n"
        "}\n%s\n",
        build, scratch, lines);
    assert_true(length > 0);
    int status = system(command);
    if (status)
        fail_msg("ended with %d:\n%s", status, lines);
    free(command);
}

CASE_WITH(test_a_program_links_with_the_build_tree, scratch_setup, scratch_teardown)
{
    shell(*state, "build_with \"$build\"\n"
                  "ldd \"$scratch/program\" | grep -q \"$build/liblockstep.so.0\"");
}

/* One object of it stands for all. */
CASE_WITH(test_a_clone_may_have_a_blank_in_its_path, scratch_setup, scratch_teardown)
{
    shell(*state, "mkdir \"$scratch/a clone\"\n"
                  "cp -r Makefile include src examples \"$scratch/a clone\"\n"
                  "cd \"$scratch/a clone\"\n"
                  "command make -s build/src/base/error.o build/lockstep-uninstalled.pc\n"
                  "flags=$(PKG_CONFIG_PATH=build pkg-config --cflags lockstep)\n"
                  "eval \"${CC:-cc} -c examples/collective.c $flags -o collective.o\"\n");
}

/* As `make coverage` builds it. */
CASE_WITH(test_a_static_library_links_with_its_counters, scratch_setup, scratch_teardown)
{
    shell(*state, "facts() {\n"
                  "    command make -s LDFLAGS=\"$1\" BUILD=\"$scratch\" "
                  "\"$scratch/lockstep-uninstalled.pc\"\n"
                  "    PKG_CONFIG_PATH=$scratch pkg-config --static --libs lockstep\n"
                  "}\n"
                  "facts --coverage | grep -q -- ' --coverage'\n"
                  "facts '' > \"$scratch/facts\"\n"
                  "without coverage \"$scratch/facts\"");
}

/* What is uninstalled leaves nothing. */
CASE_WITH(test_a_program_links_with_another_prefix, scratch_setup, scratch_teardown)
{
    shell(*state, "make install PREFIX=\"$scratch/prefix\"\n"
                  "build_with \"$scratch/prefix/lib/pkgconfig\"\n"
                  "ldd \"$scratch/program\" | grep -q \"$scratch/prefix/lib/liblockstep.so.0\"\n"
                  "build_with \"$scratch/prefix/lib/pkgconfig\" --static\n"
                  "ldd \"$scratch/program\" > \"$scratch/libs\"\n"
                  "without liblockstep \"$scratch/libs\"\n"
                  "(cd / && \"$scratch/prefix/bin/lockstep\" --version)\n"
                  "test -s \"$scratch/prefix/share/bash-completion/completions/lockstep\"\n"
                  "make uninstall PREFIX=\"$scratch/prefix\"\n"
                  "test -z \"$(find \"$scratch/prefix\" -not -type d)\"");
}

CASE_WITH(test_a_folder_for_libraries_of_its_own, scratch_setup, scratch_teardown)
{
    shell(*state, "make install PREFIX=\"$scratch/prefix\" LIBDIR=\"$scratch/prefix/lib/arch\"\n"
                  "build_with \"$scratch/prefix/lib/arch/pkgconfig\"");
}

/* DESTDIR holds everything, and what is written there names the place that it is meant for. */
CASE_WITH(test_a_staged_installation, scratch_setup, scratch_teardown)
{
    shell(*state, "make install PREFIX=/usr DESTDIR=\"$scratch/stage\"\n"
                  "without -r \"$scratch\" \"$scratch\"/stage/usr/lib/pkgconfig\n"
                  "PKG_CONFIG_PATH=\"$scratch\"/stage/usr/lib/pkgconfig pkg-config --libs lockstep"
                  " > \"$scratch/libs\"\nwithout rpath \"$scratch/libs\"");
}

/* DESTDIR may be relative, and no path may be two words: both would be removed. */
CASE_WITH(test_paths_of_an_installation, scratch_setup, scratch_teardown)
{
    shell(*state, "stage=$(realpath --relative-to=. \"$scratch\")/stage\n"
                  "make install DESTDIR=\"$stage\"\n"
                  "test -e \"$scratch/stage/usr/local/include/lockstep/train.h\"\n"
                  "mkdir \"$scratch/my\"\n"
                  "for path in PREFIX LIBDIR DESTDIR; do\n"
                  "    ! make -n uninstall \"$path=$scratch/my tools\" > \"$scratch/said\" 2>&1\n"
                  "    grep \"$path: expected a path without blanks\" \"$scratch/said\"\n"
                  "done");
}

/* What the tab key offers in bash: pages, their options, keys, and else names of files. */
CASE_WITH(test_words_are_completed, scratch_setup, scratch_teardown)
{
    static const char *const cases[][2] = {
        {"tr", "train"},
        {"data pre", "prepare"},
        {"data prepare --pai", "--pairs"},
        {"plan --acc", "--accelerators"},
        {"train x.yaml optim.w", "optim.weight_decay= optim.warmup_steps="},
        {"help ev", "eval"},
        {"train data.train = ru", ""},
        {"nosuch x", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char lines[1024];
        snprintf(lines, sizeof lines,
                 "cat > \"$scratch/try\" <<'END'\nsource cmd/completion.bash\ncompopt() { :; }\n"
                 "COMP_WORDS=(lockstep %s)\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                 "_lockstep \"$1\"\n[ \"${COMPREPLY[*]}\" = '%s' ] || "
                 "{ echo \"${COMPREPLY[*]}\"; exit 1; }\nEND\n"
                 "bash \"$scratch/try\" \"$build/lockstep\"",
                 cases[i][0], cases[i][1]);
        shell(*state, lines);
    }
}

/* A sanitizer's run time would have to be linked first. */
static int sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 1;
#else
    return 0;
#endif
}

int main(void)
{
    if (sanitized())
        return puts("skipped: this build has sanitizers") < 0;
    return suite_run(NULL, NULL);
}
