"""The base of an adapter's options."""
from abc import ABC, abstractmethod


class L2AdapterConfigBase(ABC):
    @classmethod
    @abstractmethod
    def from_dict(cls, d): ...

    @classmethod
    @abstractmethod
    def help(cls): ...
