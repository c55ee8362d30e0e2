/**
 * What a key may do. `*` grants all; an action on namespaces is granted everywhere by
 * `ratelimit.*.<action>` and in one by `ratelimit.<namespaceId>.<action>`.
 */

export const CREATE_NAMESPACE = 'ratelimit.*.create_namespace';

export class Permissions {
  readonly #granted: ReadonlySet<string>;
  readonly #all: boolean;
  /** May check in every namespace, and create one by checking in it: asked on each check. */
  readonly mayLimitAnywhere: boolean;
  readonly mayCreateNamespace: boolean;

  constructor(granted: readonly string[]) {
    this.#granted = new Set(granted);
    this.#all = this.#granted.has('*');
    this.mayLimitAnywhere = this.#all || this.#granted.has('ratelimit.*.limit');
    this.mayCreateNamespace = this.#all || this.#granted.has(CREATE_NAMESPACE);
  }

  /** @param namespaceId undefined where the namespace has none that the caller could know */
  mayLimit(namespaceId: string | undefined): boolean {
    if (this.mayLimitAnywhere) return true;
    return namespaceId !== undefined && this.#granted.has(`ratelimit.${namespaceId}.limit`);
  }
}

/** The permissions that would do for an action, as a sentence names them. */
export function wouldDo(action: string, namespaceId: string | undefined): string {
  const anywhere = `"ratelimit.*.${action}"`;
  return namespaceId === undefined
    ? anywhere
    : `${anywhere} or "ratelimit.${namespaceId}.${action}"`;
}
