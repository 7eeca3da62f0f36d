"""Our double of what the adapter uses of LMCache 0.5: the contract written down as code, for tests without the package.

Not LMCache: classes of the same names and duties, in our own words, and stricter where a misuse would go unnoticed there.
"""
