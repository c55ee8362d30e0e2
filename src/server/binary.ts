/** The npm packages with a uWebSockets.js binary, and what to install if none of them loads. */

/**
 * Versions of `@uwsjs/linux-x64-<major version of Node>`, as package.json pins them. Those for
 * Node 20 and 22 need glibc 2.27; those for Node 24 and 26 need glibc 2.38.
 */
export const PLATFORM_PACKAGES: Readonly<Record<string, string>> = {
  20: '20.51.4',
  22: '20.51.4',
  24: '20.69.0',
  26: '20.69.0',
};

/** A release of upstream with binaries for Node 22, 24 and 26. */
const UPSTREAM_INSTALL_COMMAND = 'npm install uWebSockets.js@uNetworking/uWebSockets.js#v20.67.0';

const { platform, arch, versions } = process;
const [nodeMajor] = versions.node.split('.');

/** The package with a binary for this platform and Node version; undefined if none has one. */
export function platformPackage(): string | undefined {
  if (platform !== 'linux' || arch !== 'x64' || !(nodeMajor in PLATFORM_PACKAGES)) return undefined;
  return `@uwsjs/linux-x64-${nodeMajor}`;
}

/**
 * The error message for an operator, in one sentence.
 * @param failure the error of loading the platform package; undefined if there is no such package
 */
export function missingBinaryMessage(failure: unknown): string {
  const subject = `uWebSockets.js has no binary for Node ${versions.node} on ${platform}-${arch}`;
  const name = platformPackage();
  const { code, message } = (failure ?? {}) as NodeJS.ErrnoException;
  if (code === 'MODULE_NOT_FOUND') {
    return `${subject}: install it by npm install ${name}@${PLATFORM_PACKAGES[nodeMajor]}`;
  }
  const use =
    'use Node 22.22.2 or a later 22, or 20.20.2 or a later 20 (Linux with glibc 2.27, macOS or ' +
    'Windows), or Node 24 or 26 (Linux on x64 with glibc 2.38, as in Debian 13 and Ubuntu 24.04)';
  const reason = message === undefined ? '' : ` (${name}: ${message.split('\n')[0]})`;
  return `${subject}${reason}: ${use}, or install upstream's package: ${UPSTREAM_INSTALL_COMMAND}`;
}
