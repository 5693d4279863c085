"""The intermediate representation: graphs with typed node info, signatures, programs, verifiers, printing."""
