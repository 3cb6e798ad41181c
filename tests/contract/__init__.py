"""One contract for every way in: ways x sessions x drivers. `cells.py` is the table, `test_contract.py` the contract."""
