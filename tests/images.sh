# few_images FOLDER: a part of the images that trainings learn from, to be sourced.  To load all of them, and to
# evaluate a model on all, takes longer than most of the trainings that scripts try.
few_images() {
  mkdir "$1" && python3 - "$1" <<'END'
import gzip, struct, sys

for part, count in (("train", 2000), ("t10k", 500)):
    for kind, head, each in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
        name = f"{part}-{kind}-ubyte.gz"
        with gzip.open(f"/usr/share/datasets/fashion-mnist/{name}") as file:
            data = file.read(head + count * each)
        with gzip.open(f"{sys.argv[1]}/{name}", "wb", 1) as file:
            file.write(data[:4] + struct.pack(">I", count) + data[8:])
END
}
