/**
 * The active policies, on the main thread, which publishes them to the acceptors. They are read
 * from the configuration file at the start and again on SIGHUP. A reload replaces all or none.
 */

import { statSync } from 'node:fs';
import { StartError } from '../core/errors.ts';
import { isLoopbackHost } from '../core/hosts.ts';
import type { Policy } from '../policies/policy.ts';
import { type ConfigFile, changedSettings, readConfigFile } from './file.ts';
import type { Settings } from './schema.ts';
import { FileError, throwFault } from './setting-value.ts';

/**
 * Policies that gateways probably cannot reach: there is no listener for gateways, and only
 * this machine reaches the port for checks, where they need a key. Gateways on other machines use
 * that port, so it is no fault if it is open to them.
 */
export function findUnreachablePolicies(
  file: ConfigFile | undefined,
  { host, gatewayPort, gatewaySocket }: Settings,
): FileError | undefined {
  if (file === undefined || file.policies.length === 0) return undefined;
  if ((gatewayPort ?? gatewaySocket) !== undefined || !isLoopbackHost(host)) return undefined;
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

  /** Why gateways may not reach the policies; undefined if they do. */
  get warning(): string | undefined {
    return findUnreachablePolicies(this.#file, this.#settings)?.message;
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
    return changedSettings(before, after);
  }
}
