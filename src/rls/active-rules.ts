/** The rules of a thread, by domain, each with the namespace that has its counters. */

import type { Namespace } from '../core/namespace.ts';
import type { KnownNamespaces } from '../registry/known-namespaces.ts';
import type { Domain, RlsConfiguration } from './config/configuration.ts';
import { DomainMatcher } from './config/match.ts';

export interface ActiveDomain {
  domain: Domain;
  namespace: Namespace;
  matcher: DomainMatcher;
}

export class ActiveRules {
  readonly #knownNamespaces: KnownNamespaces;
  readonly #isCompatible: boolean;
  #domains: ReadonlyMap<string, ActiveDomain> = new Map();

  constructor(knownNamespaces: KnownNamespaces, isCompatible: boolean) {
    this.#knownNamespaces = knownNamespaces;
    this.#isCompatible = isCompatible;
  }

  /** Replaces all rules. */
  activate({ domains }: RlsConfiguration): void {
    this.#domains = new Map(
      domains.map((domain) => {
        const { name } = domain;
        const matcher = new DomainMatcher(domain, this.#isCompatible);
        return [name, { domain, namespace: this.#namespaceOf(name), matcher }];
      }),
    );
  }

  /**
   * Creates the namespaces of domains again after namespaces were deleted: another machine, whose
   * rules lack a domain, may have deleted its namespace, or a deletion has made room for it.
   */
  renewNamespaces(): void {
    for (const active of this.#domains.values()) {
      const { namespace, domain } = active;
      if (namespace.isTransient) active.namespace = this.#namespaceOf(domain.name);
    }
  }

  get(domain: string): ActiveDomain | undefined {
    return this.#domains.get(domain);
  }

  /** Created before its first check, so that it has its own metrics and can have overrides. */
  #namespaceOf(name: string): Namespace {
    const known = this.#knownNamespaces;
    return known.get(name) ?? known.create(name) ?? known.makeUnregistered(name);
  }
}
