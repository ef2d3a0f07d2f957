"""Records the host logs of this folder with the real programs: `python3 record.py` as root, in an empty
folder.

Needs collectl, sysstat (its programs may lie in SYSSTAT=FOLDER/usr), procps, perf, and a JDK 17; a newer
one in JDK_NEW=FOLDER adds its formats. Every program samples for a second or two.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path.cwd()
SYSSTAT = Path(os.environ.get("SYSSTAT", "/usr"))
JDK_NEW = os.environ.get("JDK_NEW", "")
GARBAGE = """
import java.util.*;
public class Garbage {
    public static void main(String[] arguments) throws Exception {
        List<byte[]> kept = new ArrayList<>();
        Random random = new Random(1);
        long end = System.currentTimeMillis() + Long.parseLong(arguments[0]);
        while (System.currentTimeMillis() < end) {
            for (int i = 0; i < 200; i++) {
                kept.add(new byte[10000]);
                if (kept.size() > 1500) kept.set(random.nextInt(1500), kept.remove(kept.size() - 1));
            }
            Thread.sleep(5);
        }
        System.gc();
    }
}
"""
SNAPSHOT_FILES = (
    "/proc/pressure/cpu /proc/pressure/io /proc/pressure/memory /sys/fs/cgroup/unified/cpu.stat "
    "/sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpuacct/cpuacct.usage /proc/cpuinfo"
)


def shell(command: str, **more: str) -> None:
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC", **more}
    subprocess.run(["bash", "-c", command], cwd=HERE, env=environment, check=False, timeout=120)


def pack(name: str, most_lines: int = 0) -> None:
    data = (HERE / name).read_bytes()
    if most_lines:
        data = b"".join(data.splitlines(keepends=True)[:most_lines])
    (HERE / f"{name}.gz").write_bytes(gzip.compress(data, mtime=0))
    (HERE / name).unlink()


def sysstat() -> None:
    programs = SYSSTAT / "bin" if (SYSSTAT / "bin").is_dir() else SYSSTAT / "usr/bin"
    sadc = programs.parent / "lib/sysstat/sadc"
    with tempfile.TemporaryDirectory() as folder:
        binary = f"{folder}/sa"
        shell(f"{sadc} -S XALL 1 5 {binary}")
        sadf = programs / "sadf"
        shell(f"{sadf} -j {binary} -- -A > sadf.json")
        shell(f"{sadf} -d {binary} -- -A > sadf.csv")
        shell(f"{sadf} -dh {binary} -- -u -d -q > sadf_h.csv")
        shell(f"{sadf} -d -U {binary} -- -u -r > sadf_epoch.csv")
        shell(f"{sadf} -d -T {binary} -- -u -P ALL > sadf_kolkata.csv", TZ="Asia/Kolkata")
        shell(f"{next(programs.glob('sar*'))} -A -f {binary} > sar.txt")
    for name in ("sadf.json", "sadf.csv", "sar.txt"):
        pack(name)
    shell(f"{programs}/iostat -t -x -o JSON 1 3 > iostat.json")
    shell(f"{programs}/iostat -t -o JSON 1 2 > iostat_iso.json", TZ="America/New_York", S_TIME_FORMAT="ISO")
    shell(f"{programs}/iostat -t 1 2 > iostat_text.txt")
    shell(f"{programs}/iostat -t -x -y 1 2 > iostat_text_iso.txt", S_TIME_FORMAT="ISO")
    shell(f"{programs}/mpstat -P ALL -o JSON 1 2 > mpstat.json")
    shell(f"{programs}/mpstat -A 1 2 > mpstat.txt")
    shell(f"{programs}/mpstat 1 2 > mpstat_new_york.txt", TZ="America/New_York")
    shell("pidstat -l -urd -p SELF 1 2 > pidstat.txt", PATH=f"{programs}:{os.environ['PATH']}")
    shell("vmstat -t 1 3 > vmstat.txt; vmstat -w -t -n 1 3 > vmstat_wide.txt")
    shell("vmstat -d -t 1 2 | grep -v loop > vmstat_disk.txt")
    shell("vmstat -t 1 2 > vmstat_new_york.txt", TZ="America/New_York")


def perf() -> None:
    events = "task-clock,context-switches,page-faults,cycles"
    shell(f"perf stat -a -I 20 -x, -o perf_stat.csv -e {events} -- sleep 0.2")
    shell(f"perf stat -a -A -I 50 -x ';' -o perf_stat_cores.csv -e {events} -- sleep 0.2")
    shell(f"perf stat -a -I 50 -j -o perf_stat.json -e {events} -- sleep 0.2")


def snapshots() -> None:
    files = " ".join(path for path in SNAPSHOT_FILES.split() if Path(path).exists())
    one = f"date +%s.%N; tail -v -n +1 {files} | grep -v '^flags\\|^bugs\\|^power\\|^vmx'"
    shell(f"for i in 1 2 3 4 5 6; do {one}; sleep 0.01; done > kernel.snap")
    pack("kernel.snap")


def collectl() -> None:
    subsystems = "-sbcdfijmnstxyCDJMNTYZ --procfilt ccollectl --tcpfilt cituIT"
    shell(f"collectl -i 0.01:0.05 -c 12 {subsystems} --slabfilt dentry,inode -oTm -f raw")
    raw = next(HERE.glob("raw-*.raw.gz"))
    shell(f"collectl -p {raw.name} -sbcdfijmnstxyCDJMNYZ --tcpfilt cituIT -P -oTm -f plot")


def java() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Garbage.java").write_text(GARBAGE)
        shell(f"javac -d {folder} {folder}/Garbage.java")
        run = f"java -cp {folder} -Xmx48m"
        every = "-Xlog:gc*,safepoint:file"
        shell(f"{run} -XX:+UseSerialGC {every}=gc_serial.log:time,uptime,level,tags Garbage 300")
        shell(f"{run} -XX:+UseParallelGC -Xlog:gc:file=gc_parallel_uptime.log Garbage 200")
        shell(f"{run} -XX:+UseG1GC {every}=gc_g1.log:utctime,uptimenanos,pid,tid,level,tags Garbage 300")
        shell(f"{run} -XX:+UseZGC {every}=gc_z.log:time,tags Garbage 300", TZ="Europe/Berlin")
        if JDK_NEW:
            run = f"{JDK_NEW}/bin/{run}"
            every = "-Xlog:gc*,safepoint:file"
            shell(f"{run} -XX:+UseShenandoahGC -Xlog:gc:file=gc_shenandoah.log:timemillis,level Garbage 300")
            shell(f"{run} -XX:+UseZGC {every}=gc_z_generational.log:time,uptime,tags Garbage 300")
            shell(f"{run} -XX:+UseG1GC {every}=gc_g1_new.log:time,uptime,level,tags Garbage 300")
    for path in sorted(HERE.glob("gc_*.log")):
        pack(path.name, 400)


if __name__ == "__main__":
    began = time.monotonic()
    for part in (sysstat, perf, snapshots, collectl, java):
        part()
    print(f"recorded in {time.monotonic() - began:.0f} s: {sorted(path.name for path in HERE.iterdir())}")
