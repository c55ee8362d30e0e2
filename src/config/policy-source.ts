/**
 * The active policies, on the main thread, which publishes them to the acceptors. They are read
 * from the configuration file at the start and again on SIGHUP. A reload replaces all or none.
 */

import { statSync } from 'node:fs';
import { StartError } from '../core/errors.ts';
import { isLoopbackHost } from '../core/hosts.ts';
import type { Policy } from '../policies/policy.ts';
import { policyWarnings } from '../policies/warnings.ts';
import { systemMs } from '../shared-memory/clock.ts';
import { type ConfigFile, changedSettings, readConfigFile } from './file.ts';
import type { Settings } from './schema.ts';
import { FileError, throwFault } from './setting-value.ts';

/** What does not stop a start, but is probably a mistake in the policies of the file. */
export function findPolicyWarnings(file: ConfigFile | undefined, settings: Settings): StartError[] {
  if (file === undefined || file.policies.length === 0) return [];
  const others = policyWarnings(file.policies).map((message) => new StartError(message));
  return areReachable(settings) ? others : [unreachable(file), ...others];
}

/**
 * Without a listener for gateways they use the port for checks, and need a key there. Those on
 * other machines do that, so it is no mistake if the port is open to them.
 */
function areReachable({ host, gatewayPort, gatewaySocket }: Settings): boolean {
  return (gatewayPort ?? gatewaySocket) !== undefined || !isLoopbackHost(host);
}

function unreachable(file: ConfigFile): FileError {
  return new FileError(
    file.path,
    file.positions.get('policies')!,
    'a gateway can use "policies" only on WEIR_PORT and with an API key in X-Weir-Key: set' +
      ' WEIR_GATEWAY_PORT or WEIR_GATEWAY_SOCKET to accept checks of gateways without a key',
  );
}

export class Policies {
  readonly #settings: Settings;
  #file: ConfigFile | undefined;
  #loadedMs = systemMs();

  /** Without a file there are no policies. */
  constructor(settings: Settings & { file: ConfigFile | undefined }) {
    this.#settings = settings;
    this.#file = settings.file;
  }

  get path(): string | undefined {
    return this.#file?.path;
  }

  get all(): readonly Policy[] {
    return this.#file?.policies ?? [];
  }

  /** Unix time in ms at which the active policies were read. */
  get loadedMs(): number {
    return this.#loadedMs;
  }

  get warnings(): readonly string[] {
    return findPolicyWarnings(this.#file, this.#settings).map(({ message }) => message);
  }

  /**
   * Reads the file again and activates its policies.
   * @param publish resolves when every acceptor has activated the policies
   * @returns settings that have changed in the file and require a restart
   * @throws StartError for a fault in the file; then nothing has changed
   */
  async reload(publish: (policies: readonly Policy[]) => Promise<void>): Promise<string[]> {
    const before = this.#file!;
    // Reading a named pipe without a writer would block this thread.
    if (statSync(before.path, { throwIfNoEntry: false })?.isFile() === false) {
      throw new StartError(`${before.path} is no regular file`);
    }
    const after = readConfigFile(before.path, before.source, throwFault);
    await publish(after.policies);
    this.#file = { ...after, settings: before.settings };
    this.#loadedMs = systemMs();
    return changedSettings(before, after);
  }
}
