#!/usr/bin/env bash
# weir.1 out of what `weir --help` and every `weir COMMAND --help` say, on stdout.
#   cmake/man.sh PATH_OF_WEIR
set -euo pipefail
weir=$1

# Lines as they are: backslashes, hyphens and a dot or an apostrophe in front mean something to roff.
plain() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\&\\1/"; }
names() { "$weir" "$@" --help | sed -n 's/^  \([a-z]\{2,\}\)  *[^ ].*/\1/p'; }
page() { # a command's own help
  printf '.SS %s\n.nf\n' "weir $*"
  "$weir" "$@" --help | plain
  printf '.fi\n'
}

version=$("$weir" --version)
printf '.TH WEIR 1 "" "%s" "User Commands"\n' "$version"
printf '.SH NAME\nweir \\- %s\n' "$("$weir" --help | sed -n '1s/^[^:]*: //p' | plain)"
printf '.SH SYNOPSIS\n.B weir\n.I COMMAND\n[\\fIOPTIONS\\fR]\n'
printf '.SH DESCRIPTION\n.nf\n'
"$weir" --help | tail -n +3 | plain
printf '.fi\n.SH COMMANDS\n'
for command in $(names); do
  case $command in
    plan | bench) for what in $(names "$command"); do page "$command" "$what"; done ;;
    *) page "$command" ;;
  esac
done
cat <<'END'
.SH ENVIRONMENT
.TP
.B WEIR_SECRET\fR, \fBWEIR_SECRET_FILE
The job's secret, or a file that holds it and is closed to others. Ranks that meet off the loopback
need one.
.TP
.B WEIR_TLS
The word "off": jobs with a secret talk in plain text over TCP, too; all ranks must say so. Else "auto".
.TP
.B WEIR_TLS_CERT\fR, \fBWEIR_TLS_KEY\fR, \fBWEIR_TLS_CA
Files in PEM: this rank's certificate, the key to it, and the authority that all ranks' certificates come from. With all
three, beside the secret, ranks show each other their certificates.
.TP
.B WEIR_HOST
A name for the machine a rank is on, instead of the one that is found.
.TP
.B WEIR_RENDEZVOUS
Where ranks that a launcher started meet, HOST:PORT, instead of what the launcher says.
.TP
.B WEIR_LOG
How much is told on stderr: error, warn (the default), info, debug or trace.
.TP
.B WEIR_TRACE\fR, \fBWEIR_TRACE_MB
A file for a trace of every step, of rank 0 or, with %r in its name, of each rank; and how many MB it may have (256).
.TP
.B WEIR_STATUS_DIR\fR, \fBWEIR_STATUS
Where sessions keep what weir top reads, instead of $XDG_RUNTIME_DIR/weir or /tmp/weir\-UID; and the word "off":
nowhere.
.TP
.B WEIR_DEVICE_IPC
The word "off": messages that are made on devices go over the transport, where ranks of one machine could read them in
each other's device memory.
.TP
.B WEIR_CUDA_LIBRARY
Where libweir_cuda is, if it is not installed beside libweir.
.TP
.B WEIR_HELPER
Where weir\-netprobe is (an absolute path), which runs iperf3 for libweir, if it is not installed in
libexec/weir beside it.
.TP
.B WEIR_MPI_LIBRARY
Where libweir_mpi is, if it is not installed beside libweir.
.TP
.B WEIR_UML_KERNEL
The kernel of User\-Mode Linux, as scripts/uml\-kernel.sh builds it, instead of Debian's linux.uml: for \fB\-\-clock\fR, and on
processors with AMX.
.SH SEE ALSO
The headers weir/weir.h, weir/plan.h and weir/status.h explain the library; scenarios are in
share/weir/scenarios, documents in share/doc/weir.
END
