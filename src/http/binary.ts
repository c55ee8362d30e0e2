/** What to do where uWebSockets.js has no binary for the running Node: one sentence. */

/** Where upstream keeps a release with binaries for Node 22, 24 and 26. */
const UPSTREAM = 'npm install uWebSockets.js@uNetworking/uWebSockets.js#v20.67.0';

export const NO_BINARY =
  `uWebSockets.js has no binary for Node ${process.versions.node} on ${process.platform}-` +
  `${process.arch}: use Node 20.20.2 or 22.22.2 (Linux with glibc, macOS or Windows), or, on a` +
  ` later one, install upstream's package: ${UPSTREAM}`;
